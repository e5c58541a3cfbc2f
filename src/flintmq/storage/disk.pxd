cimport flintmq.storage.file_calls as file_calls
