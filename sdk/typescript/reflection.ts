// The contract as clients such as grpcurl ask for it.

import type { PackageDefinition } from "@grpc/proto-loader";
import descriptor from "protobufjs/ext/descriptor/index.js";

const { FileDescriptorProto } = descriptor;

/** proto-loader makes one file of each package, and leaves out what a client needs: imports, the names of entries of maps. */
export function described(contract: PackageDefinition): PackageDefinition {
  const encoded = new Set(Object.values(contract).flatMap((it) => ("fileDescriptorProtos" in it ? it.fileDescriptorProtos as Buffer[] : [])));
  const files = [...encoded].map((file) => FileDescriptorProto.decode(file) as any);
  const google = files.filter((it) => it.package.startsWith("google."));
  for (const file of files) {
    if (!google.includes(file)) file.dependency.push(...google.map((it) => it.name));
    for (const message of file.messageType) {
      message.reservedRange = []; // the last number is missing in each
      for (const entry of message.nestedType.filter((it: any) => it.options?.mapEntry)) {
        const name = `${entry.name.replace(/_(.)/g, (_: string, letter: string) => letter.toUpperCase())}Entry`;
        for (const it of message.field) if (it.typeName === entry.name) it.typeName = name;
        entry.name = name;
      }
    }
  }
  const fileDescriptorProtos = files.map((it) => Buffer.from(FileDescriptorProto.encode(it).finish()));
  return { contract: { fileDescriptorProtos } as any }; // reflection reads nothing else
}
