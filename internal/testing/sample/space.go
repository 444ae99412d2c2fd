// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math/rand/v2"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Input is the input of a planner.
type Input struct {
	Redirect sidecar.Redirect
	Facts    interception.Facts
}

// Parameter is a field of an [Input].
type Parameter struct {
	// Field is its path, such as "Outbound.Include".
	Field string
	// Values are the kinds of values it can have. The first is that of an Istio pod with default
	// settings.
	Values []Value
	// Kinds names sets of values with something in common, in order of preference.
	Kinds []Kind
}

// Value is one value of a parameter.
type Value struct {
	// Name describes the value, after "Field is".
	Name string
	set  func(*Input)
}

// Kind is what some values of a parameter have in common.
type Kind struct {
	// Phrase describes it, after the field: "has IPv4 prefixes".
	Phrase string
	// Values are the names of the values.
	Values []string
}

// Point has a value for each parameter of a [Space], by its index there. Its zeros represent an
// Istio pod with default settings.
type Point []int

// With returns the point with another value of one parameter.
func (p Point) With(parameter, value int) Point {
	q := slices.Clone(p)
	q[parameter] = value
	return q
}

// Space is the set of all inputs of a planner.
type Space struct {
	// Parameters are the fields of an [Input].
	Parameters []Parameter

	base sidecar.Redirect
}

// NewSpace returns the space. All of its redirects have Istio's numbers, and a source for each
// parameter, with the parameter's name.
func NewSpace() Space {
	dialect := sidecar.Istio()
	s := Space{Parameters: parameters(), base: dialect.Base}
	s.base.Sources = map[sidecar.Parameter][]interception.Source{}
	for _, field := range dialect.Fields {
		s.base.Sources[field.Parameter] = []interception.Source{{Kind: interception.SourceField, Key: string(field.Parameter)}}
	}
	return s
}

// Default returns the point of an Istio pod with default settings.
func (s Space) Default() Point { return make(Point, len(s.Parameters)) }

// Random returns a point with a random value of each parameter, the first more often than others.
func (s Space) Random(r *rand.Rand) Point {
	p := s.Default()
	for i, parameter := range s.Parameters {
		if r.IntN(2) == 0 {
			p[i] = r.IntN(len(parameter.Values))
		}
	}
	return p
}

// Input returns the point's input.
func (s Space) Input(p Point) Input {
	in := Input{Redirect: s.base}
	for i, parameter := range s.Parameters {
		parameter.Values[p[i]].set(&in)
	}
	return in
}
