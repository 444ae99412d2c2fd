// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// full returns a pod with all that a message has of it.
func full() ambient.Pod {
	return ambient.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "web-1", UID: "1", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "<b> & c\n"}, ServiceAccount: "web", HostNetwork: true,
		},
		Phase: "Running", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
	}
}

func compareAddresses() cmp.Option { return cmp.Comparer(func(a, b netip.Addr) bool { return a == b }) }

// TestMessages writes each message as the page of the protocol has it, and reads it back.
func TestMessages(t *testing.T) {
	t.Parallel()
	one := full()
	for _, test := range []struct {
		message any
		known   kinds
		line    string
	}{
		{&agentHello{[]int{1, 2}}, fromAgent(), `{"hello":{"versions":[1,2]}}`},
		{
			&annotation{7, "shop", "web-1", "1", ambient.StatusEnabled}, fromAgent(),
			`{"annotate":{"number":7,"namespace":"shop","name":"web-1","uid":"1","status":"enabled"}}`,
		},
		{
			&annotation{7, "shop", "web-1", "1", ambient.NoStatus}, fromAgent(),
			`{"annotate":{"number":7,"namespace":"shop","name":"web-1","uid":"1"}}`,
		},
		{&sourceHello{1}, fromSource(), `{"hello":{"version":1}}`},
		{
			&refusal{reasonVersion, "no", []int{1}}, fromSource(),
			`{"refused":{"reason":"UnsupportedVersion","message":"no","versions":[1]}}`,
		},
		{
			&ambient.Namespace{Name: "shop", Labels: map[string]string{"a": "b"}}, fromSource(),
			`{"namespace":{"name":"shop","labels":{"a":"b"}}}`,
		},
		{
			&one, fromSource(), `{"pod":{"namespace":"shop","name":"web-1","uid":"1","labels":{"app":"web"},` +
				`"annotations":{"a":"<b> & c\n"},"serviceAccount":"web","hostNetwork":true,"phase":"Running","addresses":["10.0.0.7","fd00::7"]}}`,
		},
		{&gone{"1"}, fromSource(), `{"gone":{"uid":"1"}}`},
		{&complete{}, fromSource(), `{"complete":{}}`},
		{&answer{7, resultDone, ""}, fromSource(), `{"annotated":{"number":7,"result":"done"}}`},
		{&answer{7, resultAgain, "busy"}, fromSource(), `{"annotated":{"number":7,"result":"again","error":"busy"}}`},
	} {
		line, err := marshal(test.message, maxFromAgent)
		if diff := cmp.Diff(test.line+"\n", string(line)); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		got, err := parse(line, test.known)
		if diff := cmp.Diff(test.message, got, compareAddresses()); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", line, err, diff)
		}
	}
}

// TestLaterMessages has what a later release of the same version may add.
func TestLaterMessages(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]any{
		`{}`:                                    nil,
		`{"farewell":{"uid":"1"}}`:              nil,
		`{"gone":{"uid":"1","at":"noon"}}`:      &gone{"1"},
		`{"gone":{"uid":"1"},"trace":{"id":7}}`: &gone{"1"},
	} {
		if got, err := parse([]byte(line), fromSource()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v", line, got, err, want)
		}
	}
	if got, err := parse([]byte(`{"pod":{}}`), fromAgent()); err != nil || got != nil {
		t.Errorf("a message of the other side: %v, %v", got, err)
	}
}

func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "\n", "GET / HTTP/1.1", "null", "[]", "7", `{"gone":`, `{"gone":{"uid":"1"}}x`, `{"gone":7}`, `{"gone":{}}`, `{"gone":{"uid":7}}`,
		`{"gone":{"uid":"1"},"complete":{}}`, `{"namespace":{}}`, `{"pod":{"namespace":"a","name":"b"}}`, `{"pod":{"namespace":"a","uid":"b"}}`,
		`{"pod":{"name":"a","uid":"b"}}`, `{"pod":{"namespace":"a","name":"b","uid":"c","addresses":["d"]}}`,
		`{"pod":{"namespace":"a","name":"b","uid":"c","addresses":[""]}}`, `{"hello":{"version":"1"}}`, `{"complete":7}`, `{"pod":null}`,
	} {
		if got, err := parse([]byte(line), fromSource()); !errors.Is(err, ErrMessage) || got != nil {
			t.Errorf("%s: %v, %v, want ErrMessage", line, got, err)
		}
	}
	for _, line := range []string{`{"annotate":{"uid":"1","name":"a"}}`, `{"annotate":{"uid":"1","namespace":"a"}}`, `{"annotate":{"name":"1","namespace":"a"}}`} {
		if got, err := parse([]byte(line), fromAgent()); !errors.Is(err, ErrMessage) || got != nil {
			t.Errorf("%s: %v, %v, want ErrMessage", line, got, err)
		}
	}
	if line, err := marshal(&gone{}, maxFromSource); !errors.Is(err, ErrMessage) || line != nil {
		t.Errorf("a message that does not parse is written as %s, %v", line, err)
	}
}

// TestLargestPod has all the annotations that Kubernetes allows, in the worst characters for JSON.
func TestLargestPod(t *testing.T) {
	t.Parallel()
	large := full()
	large.Annotations = map[string]string{"a": strings.Repeat("\x01", 256<<10)}
	line, err := marshal(&large, maxFromSource)
	if err != nil {
		t.Fatal(err)
	}
	read, err := newLines(bytes.NewReader(line), maxFromSource).next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(read, fromSource())
	if diff := cmp.Diff(&large, got, compareAddresses()); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	large.Annotations["b"] = strings.Repeat("x", maxFromSource)
	if line, err := marshal(&large, maxFromSource); !errors.Is(err, ErrMessage) || line != nil {
		t.Errorf("%d bytes, %v, want ErrMessage", len(line), err)
	}
}

func TestSlim(t *testing.T) {
	t.Parallel()
	user := int64(7)
	all := full()
	all.RunAsUser, all.RunAsGroup, all.Containers = &user, &user, []interception.Container{{Name: "c"}}
	want := full()
	for _, pod := range []*ambient.Pod{&all, &want} {
		pod.Created, pod.Ready = time.Unix(1, 0), true
	}
	if diff := cmp.Diff(&want, slim(all), compareAddresses()); diff != "" {
		t.Error(diff)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 9999)
	for name, test := range map[string]struct {
		text string
		want []string
		end  error
	}{
		"nothing":    {"", nil, io.EOF},
		"two":        {"a\nb\n", []string{"a\n", "b\n"}, io.EOF},
		"cut":        {"a\nb", []string{"a\n"}, io.ErrUnexpectedEOF},
		"cut long":   {long, nil, io.ErrUnexpectedEOF},
		"the most":   {long + "\n", []string{long + "\n"}, io.EOF},
		"too long":   {"a\n" + long + "x\n", []string{"a\n"}, ErrMessage},
		"no newline": {long + long, nil, ErrMessage},
	} {
		for _, from := range []io.Reader{strings.NewReader(test.text), iotest.OneByteReader(strings.NewReader(test.text))} {
			l := newLines(from, len(long)+1)
			var got []string
			line, err := l.next()
			for ; err == nil; line, err = l.next() {
				got = append(got, string(line))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.end) {
				t.Errorf("%s: %v\n%s", name, err, diff)
			}
		}
	}
}

// FuzzMessages parses any line as a message of each side. What parses must survive a round trip.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"hello":{"versions":[1]}}`, `{"hello":{"version":1}}`, `{"refused":{"reason":"Forbidden","message":"no"}}`,
		`{"namespace":{"name":"shop","labels":{"a":"b"}}}`, `{"gone":{"uid":"1"}}`, `{"complete":{}}`, `{"complete":null}`,
		`{"pod":{"namespace":"shop","name":"web","uid":"1","labels":{"a":"\ud800"},"addresses":["10.0.0.7","fe80::1%eth0"]}}`,
		`{"annotate":{"number":7,"namespace":"shop","name":"web","uid":"1","status":"enabled"}}`, `{"annotated":{"number":7,"result":"done"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		for _, known := range []kinds{fromSource(), fromAgent()} {
			message, err := parse(line, known)
			if err != nil && (!errors.Is(err, ErrMessage) || message != nil) {
				t.Fatalf("%q: %v, %v", line, message, err)
			}
			if message == nil {
				continue
			}
			again, err := marshal(message, 16*len(line)+1024)
			if err != nil {
				t.Fatalf("%q becomes %+v, %v", line, message, err)
			}
			if parsed, err := parse(again, known); err != nil || !cmp.Equal(message, parsed, compareAddresses()) {
				t.Fatalf("%+v becomes %+v, %v", message, parsed, err)
			}
		}
		if !bytes.Equal(before, line) {
			t.Fatal("the parser changed its input")
		}
	})
}
