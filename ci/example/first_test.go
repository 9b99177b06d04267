package example

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/conditional/conditionstest"
	"github.com/authzconf/authzconf/conditional/vectors"
)

func TestConditions(t *testing.T) {
	a := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	conditionstest.Run(t, a, conditionstest.Options{
		Load: func(policies []vectors.Policy) error { return nil },
	})
}
