"""Code that runs inside of the user's processes. It needs the standard library and Ray, and changes no result."""
