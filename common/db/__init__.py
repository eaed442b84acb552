"""Storage: one database API over SQLite and Postgres, the tables, their migrations, and what every store shares."""
