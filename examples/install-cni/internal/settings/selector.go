// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// labelSelector checks a label selector as kubectl's --selector takes it, or nothing. The
// node-watcher parses it with Kubernetes' own parser, which this process does not link.
func labelSelector(of func(*Settings) *string) parser {
	return checked("selector", shape{Type: "string"}, of, func(value string) error {
		if strings.Trim(value, blanks) == "" {
			return nil
		}
		for _, term := range atOuterCommas(value) {
			if err := checkRequirement(term); err != nil {
				return err
			}
		}
		return nil
	})
}

// fieldSelector checks a field selector as kubectl's --field-selector takes it, or nothing.
func fieldSelector(of func(*Settings) *string) parser {
	return checked("selector", shape{Type: "string"}, of, func(value string) error {
		for _, term := range atUnescapedCommas(value) {
			if err := checkField(term); err != nil {
				return err
			}
		}
		return nil
	})
}

// blanks are what may be between the words of a label selector.
const blanks = " \t\r\n"

// atOuterCommas splits a label selector at the commas outside of parentheses.
func atOuterCommas(selector string) []string {
	depth := 0
	return splitAtCommas(selector, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth <= 0
	})
}

// atUnescapedCommas splits a field selector at the commas that no backslash precedes.
func atUnescapedCommas(selector string) []string {
	escaped := false
	return splitAtCommas(selector, func(r rune) bool {
		splits := !escaped
		escaped = r == '\\' && !escaped
		return splits
	})
}

// splitAtCommas splits a text at the commas for which splits returns true. It calls splits with
// each character.
func splitAtCommas(text string, splits func(rune) bool) []string {
	var parts []string
	begin := 0
	for i, r := range text {
		if splits(r) && r == ',' {
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

// The pattern of one requirement of a label selector: !KEY, KEY, KEY=VALUE, KEY>1 or KEY in (A, B).
const (
	blank       = `[ \t\r\n]*`
	word        = `[^ \t\r\n=!(),<>]+`
	optional    = `(?:` + word + blank + `)?`
	values      = `\(` + blank + optional + `(?:,` + blank + optional + `)*\)`
	requirement = `^` + blank + `(?:!` + blank + `(` + word + `)|(` + word + `)` + blank +
		`(?:(==|=|!=|<|>)` + blank + `(` + word + `)?|(?:in|notin)` + blank + `(` + values + `))?)` + blank + `$`
)

// checkRequirement returns the error in one requirement of a label selector.
func checkRequirement(text string) error {
	found := regexp.MustCompile(requirement).FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%q is not part of a label selector: write KEY=VALUE, KEY!=VALUE, KEY, !KEY or KEY in (VALUE, …), "+
			"separated by commas", strings.Trim(text, blanks))
	}
	key, operator, value := found[1]+found[2], found[3], found[4]
	if domain, _, has := strings.Cut(key, "/"); !matches("^("+dnsName+"/)?"+labelName+"$", key) || has && len(domain) > maxName {
		return fmt.Errorf("%q is not the key of a label: write a key such as example.com/name", key)
	}
	if operator == "<" || operator == ">" {
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			return fmt.Errorf("%q is not a number, which %s compares", value, operator)
		}
	}
	for _, each := range append(strings.Split(strings.Trim(found[5], "()"), ","), value) {
		if each = strings.Trim(each, blanks); !matches("^("+labelName+")?$", each) {
			return fmt.Errorf("%q is not the value of a label: write at most 63 letters, digits, and among these dashes, dots and underscores", each)
		}
	}
	return nil
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// selectable returns the fields by which the node-watcher selects pods.
func selectable() []string {
	return []string{"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "status.phase"}
}

// checkField returns the error in one term of a field selector; an empty one is none.
func checkField(term string) error {
	if term == "" {
		return nil
	}
	end := strings.IndexAny(term, "=!")
	switch {
	case end < 0 || !matches(`^(==|=|!=)([^\\,=]|\\[\\,=])*$`, term[end:]):
		return fmt.Errorf(`%q is not part of a field selector: write FIELD=VALUE or FIELD!=VALUE, separated by commas, `+
			`and \, \= and \\ for these characters in a value`, term)
	case !slices.Contains(selectable(), term[:end]):
		return errors.New(strconv.Quote(term[:end]) + " is not a field that pods are selected by: write one of " + choices(selectable()))
	}
	return nil
}
