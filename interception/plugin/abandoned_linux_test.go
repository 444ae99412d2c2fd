// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAbandoned has no program listen at the node agent's socket, and the API server refuse the
// token.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	long := func(n *node) { n.age(2 * time.Hour); n.mark(pluginName+".refused", 2*time.Hour) }
	renewed := func(n *node) { n.mark(pluginName+".refused", 2*time.Hour) }
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		before func(*node)
		conf   string
		code   uint
		says   bool
	}{
		"for the first time":    {answer(http.StatusUnauthorized, ""), func(n *node) { n.age(2 * time.Hour) }, "{}", codeUnauthorized, false},
		"for long":              {answer(http.StatusUnauthorized, ""), long, "{}", codeUnauthorized, true},
		"for long, role gone":   {answer(http.StatusForbidden, ""), long, "{}", codeForbidden, true},
		"less than the setting": {answer(http.StatusUnauthorized, ""), long, `{"abandoned_after": "3h"}`, codeUnauthorized, false},
		"kubeconfig renewed":    {answer(http.StatusUnauthorized, ""), renewed, "{}", codeUnauthorized, false},
		"no such pod":           {answer(http.StatusNotFound, ""), long, "{}", codeNotFound, false},
		"another pod":           {pod(t, uid, "former"), long, "{}", codeStalePod, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, test.answer)
			test.before(n)
			e := n.run(n.add(test.conf)).mustFail(t, test.code)
			if got := strings.Contains(e.Details, "run install-cni uninstall on this node"); got != test.says {
				t.Errorf("got %+v", e)
			}
			noted := test.code == codeUnauthorized || test.code == codeForbidden
			if _, found, err := (mark{filepath.Join(n.runDir, pluginName+".refused")}).age(time.Now()); found != noted || err != nil {
				t.Errorf("noted: %v, %v; want %v", found, err, noted)
			}
		})
	}
}

// TestAttendedAgain has a source know a pod again.
func TestAttendedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.mark(pluginName+".refused", 2*time.Hour)
	n.run(n.add()).mustSucceed(t)
	if _, err := os.Stat(filepath.Join(n.runDir, pluginName+".refused")); !os.IsNotExist(err) {
		t.Errorf("the note is there: %v", err)
	}
}

// age has the kubeconfig be of so long ago.
func (n *node) age(ago time.Duration) {
	n.t.Helper()
	then := time.Now().Add(-ago)
	if err := os.Chtimes(n.kubeconfig(), then, then); err != nil {
		n.t.Fatal(err)
	}
}
