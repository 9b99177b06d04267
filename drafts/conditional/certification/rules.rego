# The input has the variables of the KEP's policies: request, operation, object, oldObject, options, namespaceObject and
# impersonatedRequest, null where there is none. A policy that is neither in holds nor in fails is in error. Before the
# objects are known, what a policy still depends on is left by partial evaluation of the two.
package authzconf.conditional

decision := "Deny" if {
	some id, "Deny" in effects
	not id in fails
} else := "NoOpinion" if {
	some id, "NoOpinion" in effects
	not id in fails
} else := "Allow" if {
	some id, "Allow" in effects
	id in holds
} else := "NoOpinion"

errors contains id if {
	some id, _ in effects
	not id in holds
	not id in fails
}

# in, as CEL has it: of a list its elements, of a map its keys. What is not there is neither in nor not in. What is which
# the expression tells, so that no more than that is left of it.
member(value, list) if {
	is_array(list)
	value in list
}

alien(value, list) if {
	is_array(list)
	not value in list
}

lacks(map, key) if {
	is_object(map)
	not key in object.keys(map)
}

# Numbers and texts have no order.
less(a, b) := a < b if {
	is_number(a)
	is_number(b)
}

# Without policies these are empty.
effects[id] := effect if some id, effect in {}

holds contains id if some id in []

fails contains id if some id in []
{{range .}}{{if .Cannot}}
# {{.ID}} is left out, for this cannot be said: {{.Cannot}}
{{else}}
effects[{{printf "%q" .ID}}] := {{printf "%q" .Effect}}
{{$id := .ID}}{{range .Holds}}
holds contains {{printf "%q" $id}} if {
	{{join . "\n\t"}}
}
{{end}}{{range .Fails}}
fails contains {{printf "%q" $id}} if {
	{{join . "\n\t"}}
}
{{end}}{{end}}{{end}}