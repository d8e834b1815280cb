"""What a trip costs by its messages, tensors and bytes, and which transport that speaks for."""
