from folders import sweep_of

__all__ = ["sweep_of"]
