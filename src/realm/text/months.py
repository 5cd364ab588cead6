"""Names of months, for whoever reads or writes dates."""

FULL_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
