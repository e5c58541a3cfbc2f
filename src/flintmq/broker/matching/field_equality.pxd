cimport cython


cpdef object typed_form(object value)

@cython.locals(form=list)
cpdef tuple table_form(object table)

cpdef object matching_form(object value)
