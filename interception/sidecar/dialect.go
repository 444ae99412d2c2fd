// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Dialect is the vocabulary of a mesh as data: how to recognise its pods, and which keys set which
// parameter of a [Redirect]. [Istio] returns one. Another mesh writes its own and calls
// [Dialect.Validate] in a test. The zero value recognises no pod and captures nothing.
type Dialect struct {
	// Name names the dialect in messages, such as "istio".
	Name string
	// Membership says how to recognise the mesh's pods, and names the proxy's container.
	Membership Membership
	// Base has the values that no key of a pod can change. Fields are set on a copy of it.
	Base Redirect
	// Fields are the keys that set parameters. They are applied in order.
	Fields []Field
	// Ignored are keys that exist in the mesh and have no effect here.
	Ignored []IgnoredKey
	// Prefixes are the prefixes of annotation keys that belong to the mesh's traffic settings
	// alone. Parse reports a key with such a prefix that is in neither Fields nor Ignored: it may
	// be misspelt.
	Prefixes []string
	// Resolve settles interactions between parameters and returns warnings. It may be nil.
	Resolve func(r *Redirect) []interception.Warning
}

// Field is a key of a dialect and the parameter that it sets.
type Field struct {
	// Parameter is what the key sets. The redirect's Sources keep the provenance under it.
	Parameter Parameter
	// Kind is where to look up the keys: SourceAnnotation, SourceLabel, SourceEnv (variables of the
	// proxy container), or SourceField with the keys "runAsUser" and "runAsGroup" (of the proxy
	// container's securityContext, else of the pod's). It must be one of these.
	Kind interception.SourceKind
	// Keys are the key's name and then its older names, in order of precedence. A key counts as
	// present even with an empty value.
	Keys []string
	// Default is the value when no key is present.
	Default string
	// Set parses the value and stores it in the redirect, for example with
	// [interception.ParsePortSet] or [interception.ParsePrefixSet]. Its error says what is wrong
	// with the value. Set is required.
	Set func(r *Redirect, value string) error
	// Lenient turns an error of Set into a warning and uses Default, as the mesh always has.
	Lenient bool
}

// IgnoredKey is a key without an effect.
type IgnoredKey struct {
	// Kind and Key are as in [Field]; the kinds are SourceAnnotation, SourceLabel and SourceEnv.
	Kind interception.SourceKind
	Key  string
	// Reason says why the key has no effect, and what has.
	Reason string
}

// Parse returns the redirect that the pod asks for. It does not check that the pod is in the mesh;
// [Mesh.Decide] does.
//
// The error joins a [*interception.ParseError] for each invalid value, and the redirect is then the
// zero one. It wraps [ErrDialect] if [Dialect.Validate] refuses the dialect, except for a Default
// that this pod does not need. The warnings, in a fixed order, are about valid values without an
// effect, and about ordinary init containers that have no network because the proxy starts after
// them.
func (d Dialect) Parse(pod interception.Pod) (Redirect, []interception.Warning, error) {
	if err := d.validateKeys(); err != nil {
		return Redirect{}, nil, err
	}
	p := parser{dialect: d, pod: pod, redirect: d.base()}
	p.container, _ = pod.Container(d.Membership.ProxyContainer)
	for _, field := range d.Fields {
		p.field(field)
	}
	if len(p.errs) > 0 {
		return Redirect{}, nil, errors.Join(p.errs...)
	}
	p.withoutEffect()
	if d.Resolve != nil {
		p.warnings = append(p.warnings, d.Resolve(&p.redirect)...)
	}
	p.initContainers()
	return p.redirect, p.warnings, nil
}

// base returns a copy of Base that shares no provenance with it.
func (d Dialect) base() Redirect {
	r := d.Base
	r.Sources = map[Parameter][]interception.Source{}
	for parameter, sources := range d.Base.Sources {
		r.Sources[parameter] = slices.Clone(sources)
	}
	return r
}

type parser struct {
	dialect   Dialect
	pod       interception.Pod
	container interception.Container
	redirect  Redirect
	warnings  []interception.Warning
	errs      []error
}

// field applies one field: the first of its keys that is present, else its default.
func (p *parser) field(f Field) {
	source := interception.Source{Kind: interception.SourceDefault, Key: f.Keys[0], Value: f.Default}
	for i, key := range f.Keys {
		value, found := p.lookup(f.Kind, key)
		if !found {
			continue
		}
		if at := (interception.Source{Kind: f.Kind, Key: key, Value: value}); source.Kind != interception.SourceDefault {
			p.warn(at, "it is not read because "+source.Key+" is there too: remove it")
			continue
		} else if source = at; i > 0 {
			p.warn(at, "the key is deprecated: use "+f.Keys[0])
		}
	}
	err := f.Set(&p.redirect, source.Value)
	if err != nil && f.Lenient && source.Kind != interception.SourceDefault {
		p.warn(source, fmt.Sprintf("it has no effect: %v", err))
		source = interception.Source{Kind: interception.SourceDefault, Key: f.Keys[0], Value: f.Default}
		err = f.Set(&p.redirect, source.Value)
	}
	if err != nil && source.Kind == interception.SourceDefault {
		p.errs = append(p.errs, defaultError(f, err))
		return
	}
	if err != nil {
		p.errs = append(p.errs, &interception.ParseError{Source: source, Err: err})
		return
	}
	p.redirect.Sources[f.Parameter] = append(slices.Clip(p.redirect.Sources[f.Parameter]), source)
}

func (p *parser) lookup(kind interception.SourceKind, key string) (value string, found bool) {
	switch kind {
	case interception.SourceAnnotation:
		value, found = p.pod.Annotations[key]
	case interception.SourceLabel:
		value, found = p.pod.Labels[key]
	case interception.SourceEnv:
		value, found = p.container.Env[key]
	case interception.SourceField:
		return p.securityContext(key)
	case interception.SourceDefault, interception.SourceDialect: // not looked up in a pod
	}
	return value, found
}

// securityContext looks into the proxy container's securityContext, then into the pod's, as
// Kubernetes does to run a container.
func (p *parser) securityContext(key string) (value string, found bool) {
	var ids []*int64
	switch key {
	case "runAsUser":
		ids = []*int64{p.container.RunAsUser, p.pod.RunAsUser}
	case "runAsGroup":
		ids = []*int64{p.container.RunAsGroup, p.pod.RunAsGroup}
	}
	for _, id := range ids {
		if id != nil {
			return strconv.FormatInt(*id, 10), true
		}
	}
	return "", false
}

func (p *parser) warn(source interception.Source, reason string) {
	p.warnings = append(p.warnings, interception.Warning{Source: source, Reason: reason})
}

// withoutEffect reports ignored keys, misspelt keys, and an opt-out that is not a boolean.
func (p *parser) withoutEffect() {
	for _, ignored := range p.dialect.Ignored {
		if value, found := p.lookup(ignored.Kind, ignored.Key); found {
			p.warn(interception.Source{Kind: ignored.Kind, Key: ignored.Key, Value: value}, ignored.Reason)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.pod.Annotations)) {
		if p.dialect.reserves(key) && !p.dialect.knows(key) {
			p.warn(interception.Source{Kind: interception.SourceAnnotation, Key: key, Value: p.pod.Annotations[key]},
				"the "+p.dialect.Name+" dialect knows no such key, and it has no effect: check its spelling")
		}
	}
	if source, found := p.dialect.Membership.optOut(p.pod); found && source.Value != "" {
		if _, err := strconv.ParseBool(source.Value); err != nil {
			p.warn(source, `it has no effect: write "true" or "false"`)
		}
	}
}

func (d Dialect) reserves(annotation string) bool {
	return slices.ContainsFunc(d.Prefixes, func(prefix string) bool { return strings.HasPrefix(annotation, prefix) })
}

// knows reports whether the dialect reads an annotation: to set a parameter, to ignore it with a
// reason, or to decide about membership.
func (d Dialect) knows(annotation string) bool {
	return annotation == d.Membership.OptOut || annotation == d.Membership.InjectedAnnotation || slices.ContainsFunc(d.Fields, func(f Field) bool {
		return f.Kind == interception.SourceAnnotation && slices.Contains(f.Keys, annotation)
	}) || slices.ContainsFunc(d.Ignored, func(i IgnoredKey) bool {
		return i.Kind == interception.SourceAnnotation && i.Key == annotation
	})
}

// Validate returns every mistake that would make a pod's key or value have no effect, and every
// Default that its Set refuses, joined, each wrapping [ErrDialect], or nil. It calls the Set of
// each field, on a copy of Base.
func (d Dialect) Validate() error {
	if err := d.validateKeys(); err != nil {
		return err
	}
	var errs []error
	r := d.base()
	for _, f := range d.Fields {
		if err := f.Set(&r, f.Default); err != nil {
			errs = append(errs, defaultError(f, err))
		}
	}
	return errors.Join(errs...)
}

// defaultError is a mistake of the mesh: no pod has written the value.
func defaultError(f Field, err error) error {
	return fmt.Errorf("%w: the default %q of %s: %w", ErrDialect, f.Default, f.Keys[0], err)
}

func (d Dialect) validateKeys() error {
	var errs []error
	for i, f := range d.Fields {
		if err := d.Membership.fieldMistake(f); err != nil { // most dialects are valid, and this runs for each pod
			errs = append(errs, fmt.Errorf("%w: field %d (%s): %w", ErrDialect, i, f.Parameter, err))
		}
	}
	for i, key := range d.Ignored {
		err := errors.New("a field of the pod is never ignored")
		if key.Kind != interception.SourceField {
			err = d.Membership.keyMistake(key.Kind, key.Key)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: ignored key %d: %w", ErrDialect, i, err))
		}
	}
	if slices.Contains(d.Prefixes, "") {
		errs = append(errs, fmt.Errorf("%w: prefixes: an empty one would have every annotation reported: remove it", ErrDialect))
	}
	return errors.Join(errs...)
}

func (m Membership) fieldMistake(f Field) error {
	switch {
	case f.Parameter == "":
		return errors.New("it names no parameter: its value would have no provenance")
	case !slices.Contains(parameters(), f.Parameter):
		return fmt.Errorf("%q is not a parameter of a Redirect, so no rule would name its key as the reason: write one of the constants", f.Parameter)
	case f.Set == nil:
		return errors.New("it has no Set to read a value with")
	case len(f.Keys) == 0:
		return errors.New("it has no key")
	}
	var errs []error
	for _, key := range f.Keys {
		if err := m.keyMistake(f.Kind, key); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m Membership) keyMistake(kind interception.SourceKind, key string) error {
	switch kind {
	case interception.SourceAnnotation, interception.SourceLabel:
	case interception.SourceEnv:
		if m.ProxyContainer == "" {
			return fmt.Errorf("the variable %q is of no container: Membership names no ProxyContainer", key)
		}
	case interception.SourceField:
		if key != "runAsUser" && key != "runAsGroup" {
			return fmt.Errorf("%q is not a field that is looked up: write runAsUser or runAsGroup", key)
		}
	case interception.SourceDefault, interception.SourceDialect:
		return fmt.Errorf("%q is nothing in a pod to look up %q in", kind, key)
	default:
		return fmt.Errorf("%q is not a kind of key: write SourceAnnotation, SourceLabel, SourceEnv or SourceField", kind)
	}
	if key == "" {
		return errors.New("a key has no name")
	}
	return nil
}
