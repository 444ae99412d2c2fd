// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestLinesKeepToTheirOwnFields(t *testing.T) {
	t.Parallel()
	entries := []podsource.LogEntry{
		{Time: noon, Level: slog.LevelWarn, Message: "pod is left alone", Attributes: map[string]string{"pod": "shop/web-0", "reason": "a b"}},
		{Time: noon, Level: slog.LevelInfo, Message: "x\nlevel=ERROR msg=\"not mine\"", Attributes: map[string]string{
			"pod": "shop/web-0\" level=ERROR", "level": "ERROR", "msg": "forged", "time": "never", "from": "daemon", "a=b\nc": "d\ne", `q"`: "\x00",
		}},
		{Level: 100, Message: "loud", Attributes: map[string]string{"pod": "kube-system/../x"}},
		{Time: noon, Level: slog.LevelDebug, Message: "not for this level"},
		{Time: noon, Level: -100, Message: "nor this"},
	}
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	for name, test := range map[string]struct {
		handler func(*bytes.Buffer) slog.Handler
		want    []string
	}{
		"text": {func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, options) }, []string{
			`time=2026-11-21T12:00:00.000Z level=WARN msg="pod is left alone" from=cni-plugin pod=shop/web-0 plugin.pod=shop/web-0 plugin.reason="a b"`,
			`time=2026-11-21T12:00:00.000Z level=INFO msg="x\nlevel=ERROR msg=\"not mine\"" from=cni-plugin "plugin.a=b\nc"="d\ne" plugin.from=daemon ` +
				`plugin.level=ERROR plugin.msg=forged plugin.pod="shop/web-0\" level=ERROR" "plugin.q\""="\x00" plugin.time=never`,
			`time=2026-11-21T12:00:00.000Z level=ERROR msg=loud from=cni-plugin plugin.pod=kube-system/../x`,
		}},
		"JSON": {func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, options) }, []string{
			`{"time":"2026-11-21T12:00:00Z","level":"WARN","msg":"pod is left alone","from":"cni-plugin","pod":"shop/web-0",` +
				`"plugin":{"pod":"shop/web-0","reason":"a b"}}`,
			`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"x\nlevel=ERROR msg=\"not mine\"","from":"cni-plugin","plugin":{"a=b\nc":"d\ne",` +
				`"from":"daemon","level":"ERROR","msg":"forged","pod":"shop/web-0\" level=ERROR","q\"":"\u0000","time":"never"}}`,
			`{"time":"2026-11-21T12:00:00Z","level":"ERROR","msg":"loud","from":"cni-plugin","plugin":{"pod":"kube-system/../x"}}`,
		}},
	} {
		var out bytes.Buffer
		l := &lines{to: test.handler(&out), now: func() time.Time { return noon }}
		if err := l.Log(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIsPod(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"shop/web-0": true, "a.b/c": true, "": false, "/": false, "shop/": false, "/web": false, "web": false, "a/b/c": false, "A/b": false,
		"shop/" + strings.Repeat("x", 600): false,
	} {
		if isPod(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
