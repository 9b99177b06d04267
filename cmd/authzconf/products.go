package main

import (
	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/upgrade"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/conditions"
	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/loadgen"
)

// products are all products, each with the words that start it.
func products() []product.Product {
	return []product.Product{
		conformance.Product,
		upgrade.Product,
		explore.Product,
		deputy.Product,
		granular.Product,
		conditions.Run,
		conditions.Explore,
		loadgen.Product,
		certify.Product,
		certification.Product,
	}
}
