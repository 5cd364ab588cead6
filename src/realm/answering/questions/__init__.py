"""The form of a question: the kind of answer that it asks for, its question words by language, and questions made of statements."""
