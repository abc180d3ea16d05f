"""Any client's spelling in, one canonical `Turn` out. Nothing here knows sockets, tasks or stores."""
