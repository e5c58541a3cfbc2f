from flintmq.protocol.client cimport ClientChannel


cdef class ClientEvents:
    cpdef connection_notice(self, method)
    cpdef notice(self, ClientChannel channel, method)
    cpdef reply(self, ClientChannel channel, method, waiter)
    cpdef deliver(
        self,
        ClientChannel channel,
        bytes consumer_tag,
        unsigned long long tag,
        bint redelivered,
        bytes route,
        bytes properties,
        bytes body,
    )
    cpdef settled(self, ClientChannel channel, unsigned long long tag, bint multiple, bint refused)
    cpdef message_request(self, ClientChannel channel, unsigned long long request_id, method)
    cpdef message_response(self, ClientChannel channel, method, answered)
    cpdef content(self, ClientChannel channel, method, bytes properties, bytes body, waiter)
