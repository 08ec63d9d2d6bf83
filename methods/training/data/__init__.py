"""What is trained on: prompt lists, captures of what the target wrote, batches of them."""
