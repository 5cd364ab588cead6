"""Masking: sentences as queries with hidden wordpieces (REALM, section 3.4). Start at ``sentences.py``; ``kinds.py`` chooses spans."""
