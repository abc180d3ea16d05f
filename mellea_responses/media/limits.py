"""Every limit of pictures and files, in one place. docs/files.md tells users."""

MIB = 2**20

PARTS = 250
"""Pictures and files in one request."""

IMAGE_BYTES = 20 * MIB
IMAGE_PIXELS = 40_000_000
IMAGE_SCANS = 64
"""Passes over a JPEG; encoders make about ten of them, and each costs as much as the whole picture."""
IMAGE_PIECES = 100_000
"""Reads of a picture's chunks, segments and blocks, a few for each."""
REQUEST_PIXELS = 400_000_000
"""In all pictures of one request together: each is decoded once, to be sure of it."""

FILE_BYTES = 32 * MIB
FILE_CHARACTERS = 4_000_000
"""Of text, in all files of one request together."""
PDF_PAGES = 1_000
"""In all PDFs of one request together."""
PDF_SECONDS = 60.0
"""For all PDFs of one request together, waiting left out."""
PDF_CPU_SECONDS = 30
"""For one PDF."""
PDF_MEMORY = 512 * MIB
"""Address space of the process that reads one PDF."""

FETCH_BYTES = 2 * IMAGE_BYTES
"""In all pictures fetched for one request together."""
FETCH_SECONDS = 15.0
"""For one picture with its redirects."""
FETCH_REDIRECTS = 3
FETCH_PARTS = 20
"""Pictures fetched for one request."""
FETCH_PORTS = frozenset({80, 443})
URL_CHARACTERS = 8_192

AGAIN_SECONDS = 30.0
"""For everything of earlier turns that has to be read again."""
CACHE_BYTES = 64 * MIB
"""Of what was read, kept for the next turns."""
