"""What was collected, in arrays that own their memory."""
