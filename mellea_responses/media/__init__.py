"""Pictures and files: what of them is read, within which limits, and by whom. The rest of the package sees text.

Items stay as the client sent them; what was read stands beside them in `Turn.media`.
"""
