"""Tables and figures of challenge papers as data: analyses of the rows and leaderboards of all teams."""
