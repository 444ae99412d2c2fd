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

// Dialect is the vocabulary of a mesh as data: how its pods are known, and which of their annotations, variables and ids set
// which parameter of a [Redirect]. [Istio] returns one; another mesh writes its own, and has a test call [Dialect.Validate]. The zero value
// knows no pod and no key, and its redirect captures nothing.
type Dialect struct {
	// Name names the dialect in messages, such as "istio".
	Name string
	// Membership says how the mesh's pods are known, and which container the proxy is.
	Membership Membership
	// Base is what no key of a pod can change. The fields are set on a copy of it.
	Base Redirect
	// Fields are the keys that set parameters. They are applied in order.
	Fields []Field
	// Ignored are keys that exist in the mesh and have no effect here.
	Ignored []IgnoredKey
	// Prefixes are those of annotation keys that belong to the mesh's traffic settings alone: a key with such a prefix that no
	// Field and no Ignored names is reported, as it may be a misspelling.
	Prefixes []string
	// Resolve settles what several parameters mean together, and reports what will have no effect. It may be nil.
	Resolve func(r *Redirect) []interception.Warning
}

// Field is a key of a dialect and the parameter it sets.
type Field struct {
	// Parameter is what the key sets; provenance is kept under it.
	Parameter Parameter
	// Kind is where the keys are looked up: SourceAnnotation, SourceLabel, SourceEnv (variables of the proxy container), or SourceField with
	// the keys "runAsUser" and "runAsGroup" (of the proxy container's securityContext, else of the pod's). There is no other, and no default.
	Kind interception.SourceKind
	// Keys are the key's name and, behind it, older names that are read when the former are absent. Presence counts, also with
	// an empty value.
	Keys []string
	// Default is the value that stands in when no key is there.
	Default string
	// Set parses the value and puts it into the redirect: [interception.ParsePortSet], [interception.ParsePrefixSet] and their like are
	// there for it. Its error says what is wrong with the value. It must be there.
	Set func(r *Redirect, value string) error
	// Lenient makes a value that Set refuses a warning, and Default take its place, where the mesh has always been so.
	Lenient bool
}

// IgnoredKey is a key without an effect.
type IgnoredKey struct {
	// Kind and Key are as in [Field]; the kinds are SourceAnnotation, SourceLabel and SourceEnv.
	Kind interception.SourceKind
	Key  string
	// Reason says why it has no effect, and what has.
	Reason string
}

// Parse makes the redirect that the pod asks for. The pod is taken to be one of the mesh; [Mesh.Decide] says whether it is.
//
// The error joins a [*interception.ParseError] for each value that cannot be understood, and the redirect is then the zero one; it wraps
// [ErrDialect] when [Dialect.Validate] refuses the dialect. Warnings are about values that are understood and have no effect, and about
// ordinary init containers that have no network because the proxy is started after them, in a fixed order.
func (d Dialect) Parse(pod interception.Pod) (Redirect, []interception.Warning, error) {
	if err := d.Validate(); err != nil {
		return Redirect{}, nil, err
	}
	p := parser{dialect: d, pod: pod, redirect: d.Base}
	p.redirect.Sources = maps.Clone(d.Base.Sources)
	if p.redirect.Sources == nil {
		p.redirect.Sources = map[Parameter][]interception.Source{}
	}
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

// AnnotationsSuffice says whether annotations are all that [Mesh.Decide] and Parse look at in a pod, its names aside: a plugin that a
// container runtime passes them to then needs no other source. It follows from the dialect: the only test of its Membership is
// InjectedAnnotation, and no Field or Ignored key is looked up elsewhere than in annotations. [Istio] needs more: the ids and
// variables of the proxy's container, and labels.
//
// Whether a pod is in the host's network isn't seen in annotations either. Container runtimes call no plugin for such a pod.
func (d Dialect) AnnotationsSuffice() bool {
	m := d.Membership
	m.InjectedAnnotation = ""
	return d.Membership.InjectedAnnotation != "" && m == Membership{} &&
		!slices.ContainsFunc(d.Fields, func(f Field) bool { return f.Kind != interception.SourceAnnotation }) &&
		!slices.ContainsFunc(d.Ignored, func(i IgnoredKey) bool { return i.Kind != interception.SourceAnnotation })
}

type parser struct {
	dialect   Dialect
	pod       interception.Pod
	container interception.Container
	redirect  Redirect
	warnings  []interception.Warning
	errs      []error
}

// field applies one field: the first of its keys that is there, else its default.
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

// securityContext looks into the proxy container's, else into the pod's, as Kubernetes does for what the container runs as.
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

// withoutEffect reports the keys that are there and do nothing: ignored ones, misspelt ones, and an opt-out that is no boolean.
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

// knows says whether the dialect reads an annotation: to set a parameter, to ignore it with a reason, or to decide about membership.
func (d Dialect) knows(annotation string) bool {
	return annotation == d.Membership.OptOut || annotation == d.Membership.InjectedAnnotation || slices.ContainsFunc(d.Fields, func(f Field) bool {
		return f.Kind == interception.SourceAnnotation && slices.Contains(f.Keys, annotation)
	}) || slices.ContainsFunc(d.Ignored, func(i IgnoredKey) bool {
		return i.Kind == interception.SourceAnnotation && i.Key == annotation
	})
}

// Validate reports every mistake in the dialect that would have a key of a pod looked up nowhere, or a value of it go nowhere, joined, each
// wrapping [ErrDialect]; nil when there is none. It asks no function of the dialect.
func (d Dialect) Validate() error {
	var errs []error
	refuse := func(at string, reason error) {
		if reason != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrDialect, at, reason))
		}
	}
	for i, f := range d.Fields {
		refuse(fmt.Sprintf("field %d (%s)", i, f.Parameter), d.fieldMistake(f))
	}
	for i, key := range d.Ignored {
		at := fmt.Sprintf("ignored key %d", i)
		if key.Kind == interception.SourceField {
			refuse(at, errors.New("a field of the pod is never ignored"))
			continue
		}
		refuse(at, d.keyMistake(key.Kind, key.Key))
	}
	if slices.Contains(d.Prefixes, "") {
		refuse("prefixes", errors.New("an empty one would have every annotation reported: remove it"))
	}
	return errors.Join(errs...)
}

func (d Dialect) fieldMistake(f Field) error {
	switch {
	case f.Parameter == "":
		return errors.New("it names no parameter: its value would have no provenance")
	case !slices.Contains(parameters(), f.Parameter):
		return fmt.Errorf("%q is no parameter of a Redirect, so no rule would name its key as the reason: write one of the constants", f.Parameter)
	case f.Set == nil:
		return errors.New("it has no Set to read a value with")
	case len(f.Keys) == 0:
		return errors.New("it has no key")
	}
	var errs []error
	for _, key := range f.Keys {
		errs = append(errs, d.keyMistake(f.Kind, key))
	}
	return errors.Join(errs...)
}

func (d Dialect) keyMistake(kind interception.SourceKind, key string) error {
	switch kind {
	case interception.SourceAnnotation, interception.SourceLabel:
	case interception.SourceEnv:
		if d.Membership.ProxyContainer == "" {
			return fmt.Errorf("the variable %q is of no container: Membership names no ProxyContainer", key)
		}
	case interception.SourceField:
		if key != "runAsUser" && key != "runAsGroup" {
			return fmt.Errorf("%q is no field that is looked up: write runAsUser or runAsGroup", key)
		}
	case interception.SourceDefault, interception.SourceDialect:
		return fmt.Errorf("%q is nothing in a pod to look up %q in", kind, key)
	default:
		return fmt.Errorf("%q is no kind of key: write SourceAnnotation, SourceLabel, SourceEnv or SourceField", kind)
	}
	if key == "" {
		return errors.New("a key has no name")
	}
	return nil
}
