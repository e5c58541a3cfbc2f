from flintmq.protocol.channel cimport Channel


cdef class Events:
    cpdef greeted(self, int version)
    cpdef method(self, Channel channel, method)
    cpdef publish(self, Channel channel, bytes route, int flags, bytes content, Py_ssize_t header_size)
    cpdef body_begins(self, Channel channel, bytes route, int flags, bytes header)
    cpdef bint is_short(self) noexcept
    cpdef publish_spooled(self, Channel channel, bytes route, int flags, bytes header, sink)
    cpdef ack(self, Channel channel, unsigned long long tag, bint multiple)
    cpdef content(self, Channel channel, method, bytes content, Py_ssize_t header_size)
    cpdef content_begins(self, Channel channel, method, bytes header)
    cpdef message_request(self, Channel channel, unsigned long long request_id, method)
    cpdef message_response(self, Channel channel, method, answered)
    cpdef fault(self, Channel channel, fault)
