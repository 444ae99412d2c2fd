// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/kubeconfig"
)

// TestNothingPrintsTheToken prints everything that contains a token in every way.
func TestNothingPrintsTheToken(t *testing.T) {
	t.Parallel()
	in := input(t)
	file, err := kubeconfig.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	hidden := struct{ file kubeconfig.File }{file}
	hiddenToken := struct{ token kubeconfig.Token }{in.Token}
	for name, value := range map[string]any{
		"Token": in.Token, "Token in an unexported field": hiddenToken, "*Token": &in.Token, "Token in a list": []kubeconfig.Token{in.Token},
		"Token in a map": map[string]kubeconfig.Token{"token": in.Token}, "Input": in, "*Input": &in,
		"File": file, "*File": &file, "File in an exported field": struct{ F kubeconfig.File }{file}, "File in an unexported field": hidden,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%T", "%t", "%U", "%c", "%e", "%b", "%o", "%080v", "%-9.3s"} {
				wantNoSecret(t, verb, fmt.Sprintf(verb, value))
			}
			wantNoSecret(t, "%p", fmt.Sprintf("%p", value))
			wantNoSecret(t, "Print", fmt.Sprint(value))
			wantNoSecret(t, "Errorf", fmt.Errorf("using %v: %w", value, errors.ErrUnsupported).Error())
			for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
				"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
				"JSON": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
			} {
				var log bytes.Buffer
				slog.New(handler(&log)).With("with", value).Info("message", "value", value, slog.Group("group", slog.Any("value", value)))
				wantNoSecret(t, "slog "+name, log.String())
			}
			encoded, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			wantNoSecret(t, "JSON", string(encoded))
		})
	}
}

func wantNoSecret(t *testing.T, way, got string) {
	t.Helper()
	forms := []string{secret, secret[:8], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret), fmt.Sprintf("%d", []byte(secret))}
	for _, form := range forms {
		if strings.Contains(got, form) {
			t.Errorf("%s prints the token: %s", way, got)
		}
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	token := kubeconfig.NewToken(secret)
	encoded, err := json.Marshal(map[string]any{"t": token})
	if err != nil {
		t.Fatal(err)
	}
	marked, err := xml.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	for way, got := range map[string]string{
		"String": token.String(), "%v": fmt.Sprintf("%v", token), "%#v": fmt.Sprintf("%#v", token), "%x": fmt.Sprintf("%x", token),
		"LogValue": token.LogValue().String(), "JSON": string(encoded), "XML": string(marked),
	} {
		want := map[string]string{"JSON": `{"t":"REDACTED"}`, "XML": "<Token>REDACTED</Token>"}[way]
		if want == "" {
			want = "REDACTED"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", way, got, want)
		}
	}
	if token.Reveal() != secret {
		t.Errorf("Reveal gives %q", token.Reveal())
	}
}

// TestFilePrintsItself checks that a printed file shows everything except the token.
func TestFilePrintsItself(t *testing.T) {
	t.Parallel()
	file, err := kubeconfig.Build(input(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(string(file.YAML()), secret, "REDACTED"); file.String() != want {
		t.Errorf("String is\n%s\nwant\n%s", file, want)
	}
	text, err := file.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for way, got := range map[string]string{
		"%v": fmt.Sprintf("%v", file), "%#v": fmt.Sprintf("%#v", file),
		"LogValue": file.LogValue().String(), "MarshalText": string(text),
	} {
		if got != file.String() {
			t.Errorf("%s is %s", way, got)
		}
	}
}
