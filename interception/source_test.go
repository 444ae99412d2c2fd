// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/meshcni/meshcni/interception"
)

// TestLongValuesAreShownBriefly has values as long as annotations may be: messages show their
// beginning, and the length. The error itself has the whole value.
func TestLongValuesAreShownBriefly(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]string{
		"of letters": strings.Repeat("x", 1<<16), "of several bytes a letter": strings.Repeat("ü€", 1<<14), "not UTF-8": strings.Repeat("\xbf", 1<<16),
	} {
		_, asPorts := interception.ParsePortSet(long)
		_, asPrefixes := interception.ParsePrefixSet(long)
		_, asInterfaces := interception.ParseInterfaceSet(long)
		_, asUsers := interception.ParseUIDSet(long)
		for kind, reason := range map[string]error{
			"ports": asPorts, "prefixes": asPrefixes, "interfaces": asInterfaces, "users": asUsers, "no": errors.New("no"),
		} {
			source := interception.Source{Kind: interception.SourceAnnotation, Key: "example.com/ports", Value: long}
			err := &interception.ParseError{Source: source, Err: reason}
			warning := interception.Warning{Source: source, Reason: "no"}
			for _, text := range []string{err.Error(), warning.String()} {
				if len(text) > 4000 || !strings.HasPrefix(strings.TrimPrefix(text, "invalid "), `annotation example.com/ports="`) ||
					!strings.Contains(text, `"… (`) || !strings.Contains(text, " bytes)") || !utf8.ValidString(text) {
					t.Errorf("%s, as %s: %d bytes: %.400s", name, kind, len(text), text)
				}
			}
			if err.Source.Value != long {
				t.Errorf("%s, as %s: the error has lost its value", name, kind)
			}
		}
	}
	short := interception.Warning{Source: interception.Source{Kind: interception.SourceLabel, Key: "k", Value: "v"}, Reason: "no"}
	if got := short.String(); got != `label k="v": no` {
		t.Errorf("a short value is shown as %s", got)
	}
}

// A key comes from a pod, too: it must not forge lines or control the terminal.
func TestKeysThatDoNotPrintAreQuoted(t *testing.T) {
	t.Parallel()
	s := interception.Source{Kind: interception.SourceAnnotation, Key: "a/\x1b[31mX\nwarning: fake", Value: "v"}
	const want = `annotation "a/\x1b[31mX\nwarning: fake"="v"`
	for _, got := range []string{
		s.String(), strings.TrimSuffix(interception.Warning{Source: s}.String(), ": "),
		strings.TrimSuffix(strings.TrimPrefix((&interception.ParseError{Source: s}).Error(), "invalid "), ": <nil>"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
