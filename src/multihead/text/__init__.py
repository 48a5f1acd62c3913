"""Text to tokens: tokenizers, their training and file formats, chat templates."""
