"""The bundled demo world."""
