"""The optional native kernel of compressed search: plain C, built where a C compiler is, called through ctypes."""
