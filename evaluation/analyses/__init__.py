"""What a challenge's paper shows, as data: analyses of the rows and leaderboards of all teams."""
