cimport cython
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.broker.matching.wildcard cimport Wildcard

cdef int FALSE
cdef int TRUE
cdef int UNKNOWN

cdef object WHOLE_MAX
cdef int COMPARED_LETTERS

cpdef int compare(str operator, object left, object right) except -2
cpdef object calculate(str operator, object left, object right)


cdef class Expression:
    cdef public int height

    cpdef object value(self, Lookup lookup)
    cpdef int test(self, Lookup lookup) except -2


@cython.final
cdef class Literal(Expression):
    cdef readonly object constant


@cython.final
cdef class Name(Expression):
    cdef readonly object reference


@cython.final
cdef class BodyPath(Expression):
    cdef readonly tuple path


cdef class Operation(Expression):
    cdef readonly str operator
    cdef readonly Expression left
    cdef readonly Expression right


@cython.final
cdef class Arithmetic(Operation):
    pass


@cython.final
cdef class Comparison(Operation):
    pass


cdef class Between(Expression):
    cdef readonly Expression operand
    cdef readonly Expression low
    cdef readonly Expression high

    @cython.locals(above=cython.int, below=cython.int)
    cpdef int test(self, Lookup lookup) except -2


@cython.final
cdef class Membership(Expression):
    cdef readonly Expression operand
    cdef readonly tuple constants
    cdef frozenset keys
    cdef object kind


@cython.final
cdef class Like(Expression):
    cdef readonly Expression operand
    cdef readonly Wildcard wildcard


@cython.final
cdef class IsNull(Expression):
    cdef readonly Expression operand


@cython.final
cdef class Truth(Expression):
    cdef readonly Expression operand


cdef class Not(Expression):
    cdef readonly Expression operand

    @cython.locals(found=cython.int)
    cpdef int test(self, Lookup lookup) except -2


cdef class Junction(Expression):
    cdef readonly bint is_and
    cdef readonly tuple parts

    @cython.locals(part=Expression, found=cython.int, verdict=cython.int, decisive=cython.int)
    cpdef int test(self, Lookup lookup) except -2


@cython.final
cdef class SelectorCondition(Condition):
    cdef readonly Expression root
