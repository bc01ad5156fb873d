"""What single notebooks stand on; the kit beside it knows nothing of them."""
