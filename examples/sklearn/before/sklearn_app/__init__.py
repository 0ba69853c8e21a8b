"""A logistic regression in scikit-learn, trained at several sites."""
