"""Lists as requests ask for them: filtered, sorted, cut into pages, with the columns that are wanted."""
