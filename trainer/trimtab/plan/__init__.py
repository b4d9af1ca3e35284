"""The plan as data: its parts, its name, the timetable of a schedule; and pure functions that make its parts."""
