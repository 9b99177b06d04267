package main

import (
	"github.com/authzconf/authzconf/engine/product"
)

// products are all products, each with the words that start it.
func products() []product.Product {
	return []product.Product{}
}
