"""Bodies of requests before anybody reads them: compressed ones, and those in several parts."""
