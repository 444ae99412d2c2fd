module github.com/meshcni/meshcni/examples/e2e

go 1.26.0

replace github.com/meshcni/meshcni => ../..
