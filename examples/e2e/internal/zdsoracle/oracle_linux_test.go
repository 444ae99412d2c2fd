// SPDX-License-Identifier: Apache-2.0

package zdsoracle

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"istio.io/istio/pkg/zdsapi"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// unknown is a field that neither side knows: number 100, a string.
const unknown = "\xa2\x06\x03new"

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// requests are the messages of the agent, as both sides write them.
func requests() map[zds.Request]*zdsapi.WorkloadRequest {
	all := map[zds.Request]*zdsapi.WorkloadRequest{
		{Kind: zds.KindSnapshotSent}: {Payload: &zdsapi.WorkloadRequest_SnapshotSent{SnapshotSent: &zdsapi.SnapshotSent{}}},
	}
	for _, uid := range []string{"u", "863b91d4-4b68-4efa-917f-4b560e3e86aa", strings.Repeat("x", 200)} {
		for _, name := range []string{"", "pod-é", strings.Repeat("n", 150)} {
			w := zds.Workload{UID: uid, Name: name, Namespace: "shop", ServiceAccount: "account"}
			all[zds.Request{Kind: zds.KindAdd, Workload: w}] = &zdsapi.WorkloadRequest{Payload: &zdsapi.WorkloadRequest_Add{Add: &zdsapi.AddWorkload{
				Uid: uid, WorkloadInfo: &zdsapi.WorkloadInfo{Name: name, Namespace: "shop", ServiceAccount: "account"},
			}}}
		}
		only := zds.Workload{UID: uid}
		all[zds.Request{Kind: zds.KindKeep, Workload: only}] = &zdsapi.WorkloadRequest{
			Payload: &zdsapi.WorkloadRequest_Keep{Keep: &zdsapi.KeepWorkload{Uid: uid}},
		}
		all[zds.Request{Kind: zds.KindDel, Workload: only}] = &zdsapi.WorkloadRequest{
			Payload: &zdsapi.WorkloadRequest_Del{Del: &zdsapi.DelWorkload{Uid: uid}},
		}
	}
	return all
}

// TestRequests has each side read what the other one writes, with and without a field of a later
// version.
func TestRequests(t *testing.T) {
	t.Parallel()
	for ours, theirs := range requests() {
		own, err := ours.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		written := marshal(t, theirs)
		if string(own) != string(written) {
			t.Errorf("%v: we write %x, and Istio %x", ours, own, written)
		}
		for _, data := range []string{string(written), string(written) + unknown} {
			if got, err := zds.ParseRequest([]byte(data)); err != nil || got != ours {
				t.Errorf("we read %x as %v, %v, want %v", data, got, err, ours)
			}
		}
		var read zdsapi.WorkloadRequest
		if err := proto.Unmarshal(own, &read); err != nil || !proto.Equal(&read, theirs) {
			t.Errorf("Istio reads %x as %v, %v, want %v", own, &read, err, theirs)
		}
	}
}

// TestAnswers does the same for the proxy's messages.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "no", strings.Repeat("é", 300)} {
		theirs := marshal(t, &zdsapi.WorkloadResponse{Payload: &zdsapi.WorkloadResponse_Ack{Ack: &zdsapi.Ack{Error: text}}})
		ours, err := zds.Ack{Error: text}.Marshal()
		if err != nil || string(ours) != string(theirs) {
			t.Errorf("we write %x, %v, and Istio %x", ours, err, theirs)
		}
		if got, err := zds.ParseAck([]byte(string(theirs) + unknown)); err != nil || got.Error != text {
			t.Errorf("we read %x as %v, %v", theirs, got, err)
		}
	}
	hello := marshal(t, &zdsapi.ZdsHello{Version: zdsapi.Version_V1})
	if ours := (zds.Hello{Version: zds.Version1}).Marshal(); string(ours) != string(hello) {
		t.Errorf("we write the hello %x, and Istio %x", ours, hello)
	}
	if got, err := zds.ParseHello([]byte(string(hello) + unknown)); err != nil || got.Version != zds.Version1 {
		t.Errorf("we read the hello as %v, %v", got, err)
	}
}

// TestConversation has a client that speaks by Istio's types with our server.
func TestConversation(t *testing.T) {
	t.Parallel()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	socket := filepath.Join(t.TempDir(), "z")
	server, err := zds.Listen(t.Context(), socket, zds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	if err := server.Set(zds.Workload{UID: "kept"}, nil); err != nil {
		t.Fatal(err)
	}
	client := dial(t, socket)
	if _, err := client.Write(marshal(t, &zdsapi.ZdsHello{Version: zdsapi.Version_V1})); err != nil {
		t.Fatal(err)
	}
	if got, files := receive(t, client); got.GetKeep().GetUid() != "kept" || files != 0 {
		t.Errorf("first came %v with %d descriptors, want keep", got, files)
	}
	answer(t, client)
	if got, files := receive(t, client); got.GetSnapshotSent() == nil || files != 0 {
		t.Errorf("then came %v with %d descriptors, want snapshot sent", got, files)
	}
	answer(t, client)
	if err := server.Set(zds.Workload{UID: "a", Name: "pod", Namespace: "shop", ServiceAccount: "account"}, namespace); err != nil {
		t.Fatal(err)
	}
	want := &zdsapi.AddWorkload{Uid: "a", WorkloadInfo: &zdsapi.WorkloadInfo{Name: "pod", Namespace: "shop", ServiceAccount: "account"}}
	if got, files := receive(t, client); !proto.Equal(got.GetAdd(), want) || files != 1 {
		t.Errorf("then came %v with %d descriptors, want %v with one", got, files, want)
	}
	answer(t, client)
	if err := server.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	server.Delete("a")
	if got, files := receive(t, client); got.GetDel().GetUid() != "a" || files != 0 {
		t.Errorf("at last came %v with %d descriptors, want del", got, files)
	}
	answer(t, client)
	if err := server.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	client, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // the server notices
	return client
}

func receive(t *testing.T, client *net.UnixConn) (*zdsapi.WorkloadRequest, int) {
	t.Helper()
	data, control := make([]byte, zds.MaxMessage), make([]byte, unix.CmsgSpace(16))
	n, m, _, _, err := client.ReadMsgUnix(data, control)
	if err != nil {
		t.Fatal(err)
	}
	var request zdsapi.WorkloadRequest
	if err := proto.Unmarshal(data[:n], &request); err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:m])
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for i := range messages {
		descriptors, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, descriptor := range descriptors {
			files++
			_ = unix.Close(descriptor) // nothing was written
		}
	}
	return &request, files
}

func answer(t *testing.T, client *net.UnixConn) {
	t.Helper()
	ack := &zdsapi.WorkloadResponse{Payload: &zdsapi.WorkloadResponse_Ack{Ack: &zdsapi.Ack{}}}
	if _, err := client.Write(marshal(t, ack)); err != nil {
		t.Fatal(err)
	}
}
