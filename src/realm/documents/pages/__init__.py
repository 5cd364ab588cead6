"""Files that are one document each: plain text, Markdown, HTML, PDF, Word, pictures; and the child process that bounds their readers."""
