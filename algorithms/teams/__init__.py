"""Who plays, who values, who teaches: settings and spaces → policies, critics, trainer."""
