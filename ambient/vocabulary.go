// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Vocabulary is a mesh's annotations for ambient mode as data. [Istio] returns one.
type Vocabulary struct {
	// Name names the vocabulary in messages, such as "istio".
	Name string
	// Fields are the annotations that change [Overrides].
	Fields []Field
	// Prefixes are the prefixes of annotations that belong to ambient mode alone. Parse reports a
	// key with such a prefix that no field has: it may be misspelt.
	Prefixes []string
	// Status is the annotation by which the node's agent reports that a pod is enrolled. StatusTexts
	// are the values it writes. Parse reports any other value, because an author who writes one
	// expects an effect.
	Status      string
	StatusTexts []string
}

// Field is an annotation that changes [Overrides].
type Field struct {
	// Parameter is what the annotation changes.
	Parameter Parameter
	// Key is the annotation's name.
	Key string
	// Set parses the value and stores it. Its error says what is wrong with the value.
	Set func(o *Overrides, value string) error
	// Lenient turns an error of Set into a warning and keeps the default, as the mesh always has.
	Lenient bool
}

// Parse returns what the pod asks for, beginning with defaults. The result shares no memory with
// the pod or the defaults.
//
// The error joins a [*interception.ParseError] for each invalid value, and the overrides are then
// the zero ones. The warnings, sorted by key, are about annotations without an effect.
func (v Vocabulary) Parse(pod interception.Pod, defaults Overrides) (Overrides, []interception.Warning, error) {
	o := defaults
	o.Sources = maps.Clone(defaults.Sources)
	if o.Sources == nil {
		o.Sources = map[Parameter][]interception.Source{}
	}
	var warnings []interception.Warning
	var errs []error
	for _, field := range v.Fields {
		value, found := pod.Annotations[field.Key]
		if !found {
			continue
		}
		source := interception.Source{Kind: interception.SourceAnnotation, Key: field.Key, Value: value}
		changed := o
		switch err := field.Set(&changed, value); {
		case err == nil:
			o = changed
			o.Sources[field.Parameter] = []interception.Source{source}
		case field.Lenient:
			warnings = append(warnings, interception.Warning{Source: source, Reason: fmt.Sprintf("it has no effect: %v", err)})
		default:
			errs = append(errs, &interception.ParseError{Source: source, Err: err})
		}
	}
	if len(errs) > 0 {
		return Overrides{}, nil, errors.Join(errs...)
	}
	return o, sorted(append(warnings, v.withoutEffect(pod)...)), nil
}

func sorted(warnings []interception.Warning) []interception.Warning {
	slices.SortStableFunc(warnings, func(a, b interception.Warning) int { return strings.Compare(a.Source.Key, b.Source.Key) })
	return warnings
}

// WarningsOnNode returns warnings, sorted by key, about annotations of a pod that the node captures
// ([NodePlan]). There all pods are captured alike, as the defaults say: an annotation that asks for
// something else has no effect, whether its value is valid or not.
func (v Vocabulary) WarningsOnNode(pod interception.Pod, defaults Overrides) []interception.Warning {
	var warnings []interception.Warning
	for _, field := range v.Fields {
		value, found := pod.Annotations[field.Key]
		if !found {
			continue
		}
		asked := defaults
		if err := field.Set(&asked, value); err == nil && reflect.DeepEqual(asked, defaults) {
			continue
		}
		warnings = append(warnings, interception.Warning{
			Source: interception.Source{Kind: interception.SourceAnnotation, Key: field.Key, Value: value},
			Reason: "it has no effect where the node's namespace captures the pods, and all connections of the pod are captured: " +
				"to use it, capture the node's pods in their own namespaces",
		})
	}
	return sorted(append(warnings, v.withoutEffect(pod)...))
}

// withoutEffect reports misspelt keys and a status that the agent did not write.
func (v Vocabulary) withoutEffect(pod interception.Pod) (warnings []interception.Warning) {
	for key, value := range pod.Annotations {
		source := interception.Source{Kind: interception.SourceAnnotation, Key: key, Value: value}
		switch {
		case key == v.Status:
			if !slices.Contains(v.StatusTexts, value) {
				warnings = append(warnings, interception.Warning{
					Source: source,
					Reason: "it has no effect, because the node's agent writes it: to opt out, set the pod's label istio.io/dataplane-mode to none",
				})
			}
		case slices.ContainsFunc(v.Fields, func(f Field) bool { return f.Key == key }):
		case slices.ContainsFunc(v.Prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
			warnings = append(warnings, interception.Warning{
				Source: source, Reason: "ambient mode of " + v.Name + " knows no such key, and it has no effect: check its spelling",
			})
		}
	}
	return warnings
}

// Istio returns the annotations of Istio's ambient mode, and those for exclusions that Istio reads
// for sidecars only: with the prefix traffic.istio.io/ in place of traffic.sidecar.istio.io/.
// (https://istio.io/latest/docs/reference/config/annotations/)
//
// As in Istio, a value of the first two that is not a boolean has no effect, and Parse reports it.
// Any other invalid value is an error.
func Istio() Vocabulary {
	const traffic = "traffic.istio.io/"
	return Vocabulary{
		Name: "istio",
		Fields: []Field{
			{
				Parameter: ParameterBypassInbound, Key: "ambient.istio.io/bypass-inbound-capture", Lenient: true,
				Set: setBool(func(o *Overrides) *bool { return &o.BypassInbound }),
			},
			{
				Parameter: ParameterDNS, Key: "ambient.istio.io/dns-capture", Lenient: true,
				Set: setBool(func(o *Overrides) *bool { return &o.DNS }),
			},
			list(ParameterReroute, "istio.io/reroute-virtual-interfaces", interception.ParseInterfaceSet,
				func(o *Overrides) *interception.InterfaceSet { return &o.Reroute }),
			list(ParameterExcludeInterfaces, traffic+"excludeInterfaces", interception.ParseInterfaceSet,
				func(o *Overrides) *interception.InterfaceSet { return &o.Exclude }),
			list(ParameterInboundInclude, traffic+"includeInboundPorts", interception.ParsePortSet,
				func(o *Overrides) *interception.PortSet { return &o.Inbound.Include }),
			list(ParameterInboundExclude, traffic+"excludeInboundPorts", interception.ParsePortSet,
				func(o *Overrides) *interception.PortSet { return &o.Inbound.Exclude }),
			list(ParameterOutboundIncludePorts, traffic+"includeOutboundPorts", interception.ParsePortSet,
				func(o *Overrides) *interception.PortSet { return &o.Outbound.Include }),
			list(ParameterOutboundExcludePorts, traffic+"excludeOutboundPorts", interception.ParsePortSet,
				func(o *Overrides) *interception.PortSet { return &o.Outbound.Exclude }),
			list(ParameterOutboundInclude, traffic+"includeOutboundIPRanges", interception.ParsePrefixSet,
				func(o *Overrides) *interception.PrefixSet { return &o.Destinations }),
			list(ParameterOutboundExclude, traffic+"excludeOutboundIPRanges", interception.ParsePrefixSet,
				func(o *Overrides) *interception.PrefixSet { return &o.ExcludeDestinations }),
		},
		Prefixes:    []string{traffic, "ambient.istio.io/"},
		Status:      "ambient.istio.io/redirection",
		StatusTexts: []string{"enabled", "pending"},
	}
}

func setBool(field func(*Overrides) *bool) func(*Overrides, string) error {
	return func(o *Overrides, value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New(`write "true" or "false"`)
		}
		*field(o) = on
		return nil
	}
}

// list returns the field of an annotation that holds a list, and replaces the default.
func list[S any](p Parameter, key string, parse func(string) (S, error), field func(*Overrides) *S) Field {
	return Field{Parameter: p, Key: key, Set: func(o *Overrides, value string) error {
		set, err := parse(value)
		if err != nil {
			return err
		}
		*field(o) = set
		return nil
	}}
}
