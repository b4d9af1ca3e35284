"""What a plan is, as data: its parts, its name, the timetable of a schedule."""
