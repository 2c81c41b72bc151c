"""What is released: decisions signed and verified, their files, rechecks, exports. No torch."""
