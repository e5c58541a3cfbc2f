cimport cython
cimport flintmq.wire.amqp as amqp


@cython.final
cdef class Message:
    cdef readonly object channel
    cdef readonly unsigned long long delivery_tag
    cdef readonly unsigned int epoch
    cdef readonly bint redelivered
    cdef readonly bytes consumer_octets
    cdef readonly bytes route
    cdef readonly bytes property_octets
    cdef readonly bytes body
    cdef object decoded
    cdef readonly bint settled

    @staticmethod
    @cython.locals(message=Message)
    cdef Message create(
        object channel,
        unsigned int epoch,
        bytes consumer_octets,
        unsigned long long delivery_tag,
        bint redelivered,
        bytes route,
        bytes property_octets,
        bytes body,
    )
