// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Selector selects pods by their labels and those of their namespace. Its JSON form is that of an
// element of Istio's enablement selectors. The zero value selects every pod.
type Selector struct {
	// Pod must match the pod's labels.
	Pod LabelSelector `json:"podSelector"`
	// Namespace must match the labels of the pod's namespace.
	Namespace LabelSelector `json:"namespaceSelector"`
}

// Matches reports whether both parts match. A selector that Validate refuses matches nothing.
func (s Selector) Matches(pod, namespace map[string]string) bool {
	return s.Pod.Matches(pod) && s.Namespace.Matches(namespace)
}

// Validate returns an error that names each invalid part.
func (s Selector) Validate() error {
	return errors.Join(within("podSelector", s.Pod.Validate()), within("namespaceSelector", s.Namespace.Validate()))
}

func within(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// LabelSelector is Kubernetes' LabelSelector: labels match if every entry of MatchLabels and every
// requirement of MatchExpressions holds. The zero value matches all labels.
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/)
type LabelSelector struct {
	// MatchLabels are labels that must be there with these values.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are further requirements.
	MatchExpressions []Requirement `json:"matchExpressions,omitempty"`
}

// Requirement is one test of a label.
type Requirement struct {
	// Key is the label's key.
	Key string `json:"key"`
	// Operator is the test.
	Operator Operator `json:"operator"`
	// Values are the operands of In and NotIn. The other operators have none.
	Values []string `json:"values,omitempty"`
}

// Operator is the test of a [Requirement]. There is no default.
type Operator string

// The operators.
const (
	// In: the label is there with one of the values.
	In Operator = "In"
	// NotIn: the label is not there, or has none of the values.
	NotIn Operator = "NotIn"
	// Exists: the label is there, with any value.
	Exists Operator = "Exists"
	// DoesNotExist: the label is not there.
	DoesNotExist Operator = "DoesNotExist"
)

// Matches reports whether the labels meet the selector. An unknown operator is never met.
func (s LabelSelector) Matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if got, found := labels[key]; !found || got != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(r Requirement) bool { return !r.matches(labels) })
}

func (r Requirement) matches(labels map[string]string) bool {
	value, found := labels[r.Key]
	switch r.Operator {
	case In:
		return found && slices.Contains(r.Values, value)
	case NotIn:
		return !found || !slices.Contains(r.Values, value)
	case Exists:
		return found
	case DoesNotExist:
		return !found
	default:
		return false
	}
}

// Validate returns an error for keys and values that no label can have, unknown operators, and
// operands that do not fit the operator.
func (s LabelSelector) Validate() error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		errs = append(errs, within("matchLabels", errors.Join(checkKey(key), checkValue(s.MatchLabels[key]))))
	}
	for i, requirement := range s.MatchExpressions {
		errs = append(errs, within(fmt.Sprintf("matchExpressions[%d]", i), requirement.validate()))
	}
	return errors.Join(errs...)
}

func (r Requirement) validate() error {
	errs := []error{checkKey(r.Key)}
	switch r.Operator {
	case In, NotIn:
		if len(r.Values) == 0 {
			errs = append(errs, fmt.Errorf("%s has no values: list at least one", r.Operator))
		}
	case Exists, DoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, fmt.Errorf("%s takes no values: remove them", r.Operator))
		}
	default:
		errs = append(errs, fmt.Errorf("operator %q: write In, NotIn, Exists or DoesNotExist", r.Operator))
	}
	for _, value := range r.Values {
		errs = append(errs, checkValue(value))
	}
	return errors.Join(errs...)
}

const (
	maxLabelName   = 63  // of a key's name and of a value
	maxLabelPrefix = 253 // of a key's prefix, a DNS subdomain (RFC 1123)
)

// checkKey accepts [prefix/]name.
func checkKey(key string) error {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		name = key
	} else if len(prefix) > maxLabelPrefix || slices.ContainsFunc(strings.Split(prefix, "."), isNoDNSLabel) {
		return fmt.Errorf("label key %q: before the slash, write a DNS name of at most %d characters", key, maxLabelPrefix)
	}
	if name == "" {
		return fmt.Errorf("label key %q has no name", key)
	}
	return within(fmt.Sprintf("label key %q", key), checkName(name))
}

// checkValue accepts the empty value, too.
func checkValue(value string) error {
	if value == "" {
		return nil
	}
	return within(fmt.Sprintf("label value %q", value), checkName(value))
}

func checkName(name string) error {
	strange := func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("-_.", r) }
	if len(name) > maxLabelName || strings.ContainsFunc(name, strange) ||
		!isAlphanumeric(rune(name[0])) || !isAlphanumeric(rune(name[len(name)-1])) {
		return fmt.Errorf("write at most %d letters, digits, '-', '_' and '.', a letter or digit first and last", maxLabelName)
	}
	return nil
}

func isNoDNSLabel(label string) bool {
	strange := func(r rune) bool { return r != '-' && (!isAlphanumeric(r) || unicode.IsUpper(r)) }
	return label == "" || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, strange)
}

func isAlphanumeric(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// ParseSelectors reads a JSON array of selectors. An unknown field, an invalid selector or anything
// after the array is an error, so that a misspelt selector never enrols every pod.
func ParseSelectors(text []byte) ([]Selector, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var selectors []Selector
	if err := decoder.Decode(&selectors); err != nil {
		return nil, fmt.Errorf("enablement selectors: %w", inWords(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("enablement selectors: remove what follows the array")
	}
	var errs []error
	for i, selector := range selectors {
		errs = append(errs, within(fmt.Sprintf("enablement selector %d", i+1), selector.Validate()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return selectors, nil
}

// selectorsForm shows users the form of selectors.
const selectorsForm = `[{"podSelector": {"matchLabels": {"mesh": "yes"}}, "namespaceSelector": {"matchLabels": {"team": "shop"}}}]`

// inWords says where a value of another type than Go's was wanted, without the names of Go's types.
func inWords(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	wanted := map[reflect.Kind]string{reflect.Slice: "a list", reflect.String: "a text"}[wrong.Type.Kind()]
	return fmt.Errorf("%s has the type %s: write %s, in the form %s",
		cmp.Or(wrong.Field, "the value"), wrong.Value, cmp.Or(wanted, "an object"), selectorsForm)
}
