"""What the tests share: a real server, its bytes, and independent judges of what it says."""
